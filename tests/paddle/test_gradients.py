"""Gradients that need kernels which device mps lacks: with Paddle's fallback on, they come out right all the same."""


def test_a_second_derivative_through_the_fallback(program):
    output = program(
        """
        import numpy as np, paddle
        x = paddle.to_tensor([0.5, 1.0, 2.0], stop_gradient=False)
        y = (paddle.sin(x) * paddle.exp(x)).sum()
        (first,) = paddle.grad(y, x, create_graph=True)
        (second,) = paddle.grad(first.sum(), x)
        a = np.array([0.5, 1.0, 2.0])
        np.testing.assert_allclose(first.numpy(), np.exp(a) * (np.sin(a) + np.cos(a)), rtol=1e-5)
        np.testing.assert_allclose(second.numpy(), 2 * np.exp(a) * np.cos(a), rtol=1e-5, atol=1e-5)
        assert second.place.is_custom_place()
        print("all right")
        """,
        FLAGS_enable_api_kernel_fallback="1",
    )
    assert output.strip() == "all right"
