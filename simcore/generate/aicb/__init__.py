"""AICB 2.1's generators (github aliyun/aicb, commit 23eec3c), their output reproduced byte for byte, defects included.

Every departure of AICB from what the frameworks really do lives in this folder, next to the line that makes it;
the corrected workload is `simcore.model.rows`.
"""
