"""Line diffs, three-way merges and patches: bytes in, values out.

Never accesses the disk.
"""
