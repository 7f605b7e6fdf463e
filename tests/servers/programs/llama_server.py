"""llama.cpp's server on one model file: llama_server.py FILE PORT. Runs until it is killed."""

import signal
import sys

import xllamacpp

settings = xllamacpp.CommonParams()
settings.model.path, settings.port = sys.argv[1], int(sys.argv[2])
settings.model_alias = ["scripted"]
settings.n_ctx, settings.n_parallel = 65536, 2
# Threads that wait for each other waste what little there is to compute.
settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
settings.sampling.temp, settings.n_predict, settings.warmup, settings.use_jinja = 0, 2000, False, True
server = xllamacpp.Server(settings)
signal.pause()
