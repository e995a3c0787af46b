# PyTorch 风格
torch.mps.is_available()
torch.mps.set_device(0)

# PaddlePaddle 风格（相同模式）
paddle.mps.is_available()
paddle.mps.set_device(0)
