"""A Llama-style decoder with random weights: a prompt at once, then token by token with a cache of keys and values.

kohaku run examples/kohakutpu/12_llama.py
"""

import numpy as np

from kohakutpu.models import Llama, LlamaConfig, count, draw_llama, reference
from kohakutpu.models.figures import jitted, measured, relative

CONFIG = LlamaConfig(vocabulary=512, width=256, depth=3, heads=8, groups=2, head=32, hidden=704)
PROMPT, COUNT = 48, 8


def main() -> None:
    weights = draw_llama(CONFIG, seed=12)
    prompt = np.random.default_rng(0).integers(0, CONFIG.vocabulary, (1, PROMPT))
    model = Llama(weights, CONFIG)

    print(f"decoder of {CONFIG.depth} blocks, width {CONFIG.width}, {count(weights) / 1e6:.1f} M parameters")
    want = reference.llama(weights, CONFIG, prompt)
    print(f"a prompt of {PROMPT} tokens at once, all logits:")
    _, figures = measured(lambda: model(prompt), want)
    print(figures.pretty())
    assert figures.error < 0.06
    one = Llama(weights, CONFIG, jit=True)
    print(jitted(figures, lambda: one(prompt), want))

    # Every logit of the generation against the reference on the tokens that the machine picked.
    logits, cache = model.prefill(prompt, PROMPT + COUNT)
    picked, rows = [model.pick(logits)], [logits.numpy()[:, 0]]
    before = cache
    while len(picked) < COUNT:
        before = cache
        logits, cache = model.step(picked[-1], before)
        rows.append(logits.numpy()[:, 0])
        picked.append(model.pick(logits))
    whole = np.concatenate([prompt, np.stack(picked, axis=1)], axis=1)
    exact = reference.llama(weights, CONFIG, whole)[:, PROMPT - 1 : -1]
    agree = int((exact.argmax(-1) == np.stack(picked, axis=1)).sum())
    print(f"{COUNT} tokens generated: {' '.join(str(t[0]) for t in picked)}; float32 picks the same {agree} times")
    print(f"error of their logits {relative(np.stack(rows, axis=1), exact):.2e}; one step:")
    _, figures = measured(lambda: model.step(picked[-2], before)[0], exact[:, -1:])
    print(figures.pretty())


if __name__ == "__main__":
    main()
