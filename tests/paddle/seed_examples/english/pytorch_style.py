# PyTorch style
torch.mps.is_available()
torch.mps.set_device(0)

# PaddlePaddle style (same pattern)
paddle.mps.is_available()
paddle.mps.set_device(0)
