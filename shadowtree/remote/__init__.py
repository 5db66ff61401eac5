"""Share a timeline with other machines: push it to git servers, fetch it, join what others recorded.

No part of shadowtree runs on a server. Nothing here runs while a message is recorded.
"""
