"""``fused_linear_activation`` in eager programs: Paddle 3.3 still calls the operator where it lay in earlier versions, and where it is in none of its wheels."""

from __future__ import annotations


def install(paddle) -> None:
    """Puts the operator there, too; where Paddle has it, nothing changes."""
    operators, earlier = paddle._C_ops, paddle._legacy_C_ops
    if hasattr(earlier, "fused_gemm_epilogue") or not hasattr(operators, "fused_gemm_epilogue"):
        return

    def fused_gemm_epilogue(x, y, bias, *named):
        """As earlier versions have it: attributes by name, one result."""
        attributes = dict(zip(named[::2], named[1::2]))
        transposed = (attributes.get(name, False) for name in ("trans_x", "trans_y"))
        return operators.fused_gemm_epilogue(x, y, bias, *transposed, attributes.get("activation", "none"))[0]

    earlier.fused_gemm_epilogue = fused_gemm_epilogue
