"""What SGLang imports instead of all its 200 model modules (SGLANG_EXTERNAL_MODEL_PACKAGE, models/registry.py:154).

A model that is not here still loads: SGLang then imports the rest.
"""
