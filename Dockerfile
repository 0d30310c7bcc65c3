# syntax=docker/dockerfile:1
# CPU image:  docker build -t cosyvoice-stream .
# GPU image:  docker build -t cosyvoice-stream:gpu --build-arg GPU=1 .
#             (onnxruntime for CUDA; the base image brings the CUDA 12 libraries and cuDNN)
ARG GPU=0
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS wheel
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /wheel .

FROM python:${PYTHON}-slim AS runtime-0

FROM nvidia/cuda:12.6.3-cudnn-runtime-ubuntu24.04 AS runtime-1
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*

FROM runtime-${GPU} AS runtime
ARG GPU=0
# The runtime stage holds no checkout: beside one, `cosyvoice_stream` would be half a package.
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir /wheel/*.whl \
    && if [ "$GPU" = 1 ]; then \
         /opt/venv/bin/pip uninstall -y onnxruntime \
         && /opt/venv/bin/pip install --no-cache-dir onnxruntime-gpu; \
       fi \
    && useradd --create-home --uid 10001 voice \
    && install -d -o voice -g voice /data
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    COSYVOICE_STREAM_HOST=0.0.0.0 \
    COSYVOICE_STREAM_VOICES_DIR=/data/voices
USER voice
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD python3 -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"
CMD ["cosyvoice-stream", "serve"]
