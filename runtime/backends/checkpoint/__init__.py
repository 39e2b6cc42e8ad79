"""What a learner's checkpoint holds: tensors in safetensors, by name, whatever the ranks and the ZeRO stage."""
