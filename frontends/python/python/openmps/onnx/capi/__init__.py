"""The modules of ONNX Runtime's native part that programs import."""
