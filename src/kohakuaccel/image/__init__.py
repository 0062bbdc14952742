"""L0: encoded programs as values, and their artefact on disk. No idea what any payload means."""

from kohakuaccel.image.files import load, save
from kohakuaccel.image.model import EncodedProgram, Image

__all__ = ["EncodedProgram", "Image", "load", "save"]
