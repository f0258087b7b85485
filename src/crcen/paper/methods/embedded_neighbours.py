"""EmbeddedNeighboursClassifier: the large margin local embedding (LMLE) of Huang and others (2016)."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.models.validation import check_number
from crcen.paper.methods.loss_network import LossNetwork
from crcen.training.recipe import Schedule

__all__ = ["EmbeddedNeighboursClassifier"]

Array = NDArray[np.float64]


class EmbeddedNeighboursClassifier(LossNetwork):
    """LMLE: an embedding learned from quintuplets over clusters, decided by neighbours in it.

    Every class is cut into clusters (k-means, again among the embedded rows after each third of the epochs), and the
    loss asks that rows of a cluster lie closer than those of the class, and these closer than another class
    (`crcen.paper.losses.QuintupletLoss`). A new row q goes to the class c with the largest margin
    min over other classes of D(q, nearest) − max over the k nearest of c of D(q, ·), where a class is stood for by the
    cluster whose centre is nearest.

    Made for images, where it starts from a trained network. Here it starts from random weights, draws quintuplets
    within ordinary batches, and keeps at most ``max_neighbors`` rows of a cluster. ``predict_proba`` is the softmax of
    the margins: an order of rows, no posterior; calibrate it.

    Parameters
    ----------
    n_dimensions : int, default=16
        Of the embedding.
    cluster_size : int, default=200
        Rows a cluster should have; a class has one to ten of them.
    n_neighbors : int, default=5
        k.
    max_neighbors : int, default=100
        Rows kept of a cluster, which neighbours are looked for among.
    hidden, l2, max_epochs, schedule, device, random_state
        As in `LossNetwork`.

    Attributes
    ----------
    n_kept_, n_rows_ : int
        Rows that decisions compare with, of those it was fitted on.
    """

    _why_no_posterior = "decides by distances to neighbours, which are no probabilities"
    _loss_is_of_rows = False
    _stacks = False  # the clusters of each network are its own

    def __init__(
        self,
        *,
        n_dimensions: int = 16,
        cluster_size: int = 200,
        n_neighbors: int = 5,
        max_neighbors: int = 100,
        hidden: Any = (32,),
        l2: float = 1e-4,
        max_epochs: int | None = None,
        schedule: Schedule | None = None,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        super().__init__(
            hidden=hidden, l2=l2, max_epochs=max_epochs, schedule=schedule, device=device, random_state=random_state
        )
        self.n_dimensions = n_dimensions
        self.cluster_size = cluster_size
        self.n_neighbors = n_neighbors
        self.max_neighbors = max_neighbors

    def _n_outputs(self) -> int:
        for name in ("n_dimensions", "cluster_size", "n_neighbors", "max_neighbors"):
            check_number(self, name, low=1, integer=True)
        return int(self.n_dimensions)

    def _train(self, X: NDArray[np.float32], target: NDArray[np.int64], seed: int) -> None:
        self._of_row, self._epochs_done, self._seed = target, 0, seed
        self._class_of: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        # A row's target is its cluster, which says its class.
        super()._train(X, self._clusters(X), seed)
        self._keep(self._embedded(X))
        for name in ("_of_row", "_epochs_done", "_seed"):
            delattr(self, name)

    def _clusters(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """The number of every row's cluster; clusters are numbered across classes."""
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning

        found = np.empty(len(rows), dtype=np.int64)
        class_of: list[int] = []
        for k in range(len(self.classes_)):
            own = np.flatnonzero(self._of_row == k)
            count = int(np.clip(len(own) // self.cluster_size, 1, min(10, len(own))))
            # Rows that the network maps to fewer points than that make fewer clusters, which is no one's concern here.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                parts = KMeans(count, n_init=1, random_state=self._seed % 2**31).fit_predict(rows[own])
            numbers, parts = np.unique(parts, return_inverse=True)
            found[own] = parts + len(class_of)
            class_of += [k] * len(numbers)
        self._class_of = np.array(class_of, dtype=np.int64)
        return found

    def _loss(self, counts: Array) -> Any:
        import torch

        from crcen.paper.losses import QuintupletLoss

        outer = self

        class OverClusters(torch.nn.Module):
            """The loss of an embedding and cluster numbers."""

            def __init__(self) -> None:
                super().__init__()
                self.loss = QuintupletLoss()

            def forward(self, embedding: Any, cluster: Any) -> Any:
                classes = torch.from_numpy(outer._class_of).to(cluster.device)[cluster]
                return self.loss(embedding, classes, cluster)

        return OverClusters()

    def _after_epoch(self, net: Any, loss: Any, inputs: Any, target: Any) -> None:
        import torch

        self._epochs_done += 1
        if self._epochs_done % max(1, int(self.max_epochs or 30) // 3) == 0:
            embedded = torch.nn.functional.normalize(net(inputs), dim=1).double().cpu().numpy()
            target.copy_(torch.from_numpy(self._clusters(embedded)))

    def _embedded(self, X: NDArray[np.float32]) -> Array:
        import torch

        with torch.no_grad():
            return np.asarray(torch.nn.functional.normalize(self.module_(torch.from_numpy(X)), dim=1).double().numpy())

    def _keep(self, embedded: Array) -> None:
        """Centres of the clusters, and some of their rows."""
        clusters = self._clusters(embedded)
        self.cluster_classes_ = self._class_of
        numbers = range(len(self.cluster_classes_))
        self.centres_ = np.stack([embedded[clusters == c].mean(axis=0) for c in numbers])
        self.cluster_rows_ = [embedded[np.flatnonzero(clusters == c)[: int(self.max_neighbors)]] for c in numbers]
        self.n_kept_, self.n_rows_ = sum(map(len, self.cluster_rows_)), len(embedded)

    def _scores(self, outputs: Array) -> Array:
        """The margin of every class, from embeddings that are not yet scaled."""
        lengths = np.linalg.norm(outputs, axis=1, keepdims=True)
        q = outputs / np.maximum(lengths, 1e-12)
        to_centres = _squared_distances(q, self.centres_)
        n_classes = len(self.classes_)
        nearest, farthest = np.empty((len(q), n_classes)), np.empty((len(q), n_classes))
        for k in range(n_classes):
            own = np.flatnonzero(self.cluster_classes_ == k)
            chosen = own[to_centres[:, own].argmin(axis=1)]
            for cluster in own:
                mine = chosen == cluster
                distances = np.sort(_squared_distances(q[mine], self.cluster_rows_[cluster]), axis=1)
                k_th = min(self.n_neighbors, distances.shape[1]) - 1
                nearest[mine, k], farthest[mine, k] = distances[:, 0], distances[:, k_th]
        others = np.stack(
            [np.delete(nearest, k, axis=1).min(axis=1) for k in range(n_classes)],
            axis=1,
        )
        return others - farthest


def _squared_distances(a: Array, b: Array) -> Array:
    from scipy.spatial.distance import cdist  # holds no array of differences, which 250,000 rows have no memory for

    return np.asarray(cdist(a, b, "sqeuclidean"))
