"""The benchmark of rare topics: it reads the files of Debian's weka, and runs on made stories."""

import numpy as np

from bench.choices import reuters_text as text


def made(folder):
    """Stories in the format of the files, with quotes and line ends in them; maize is in most of the rare ones."""
    rng = np.random.default_rng(0)
    common = ["bank", "rate", "yen", "oil", "trade", "profit", "share", "tonnes"]
    for half, n in (("train", 120), ("test", 60)):
        lines = ["@relation 'Reuters'", "@attribute Text string", "@attribute class-att {0,1}", "", "@data", ""]
        for i in range(n):
            label = int(i % 6 == 0)
            words = [*rng.choice(common, 12), *(["maize"] if label and rng.random() < 0.8 else [])]
            lines.append(f"'The bank\\'s note\\n{' '.join(words)}',{label}")
        (folder / f"ReutersCorn-{half}.arff").write_text("\n".join(lines) + "\n")


def test_stories_are_read_with_their_quotes(tmp_path):
    made(tmp_path)
    stories, y = text.read(tmp_path, "Corn", "train")
    assert len(stories) == len(y) == 120
    assert y.tolist() == [int(i % 6 == 0) for i in range(120)]
    assert stories[0].startswith("The bank's note ")
    rows = text.numbered(["maize bank, maize"], {"maize": 3, "bank": 1})
    assert rows[0, :4].tolist() == [3, 1, 3, 0]


def test_a_small_run_prints_a_line_for_each_model(tmp_path, capsys):
    made(tmp_path)
    text.main(["--quick", "--data", str(tmp_path), "--out", str(tmp_path / "out.txt")])
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("counted words") for line in lines) == 6
    assert sum(line.startswith("embeddings") for line in lines) == 6
    assert (tmp_path / "out.txt").read_text().splitlines() == lines
