"""What training with K outputs needs beside the path of one logit."""
