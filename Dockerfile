# syntax=docker/dockerfile:1
# CPU image:  docker build -t cosyvoice-stream .
# GPU image:  docker build -t cosyvoice-stream:gpu --build-arg GPU=1 .   (run with --gpus all)
# The GPU image adds torch, whose wheels carry CUDA; the driver comes from the host.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS wheel
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /wheel .

# The runtime stage holds no checkout: beside one, `cosyvoice_stream` would be half a package.
FROM python:${PYTHON}-slim AS runtime
ARG GPU=0
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    wheel=$(ls /wheel/*.whl) \
    && if [ "$GPU" = 1 ]; then wheel="${wheel}[cosyvoice]"; fi \
    && pip install --no-cache-dir "$wheel" \
    && useradd --create-home --uid 10001 voice \
    && install -d -o voice -g voice /data
ENV PYTHONUNBUFFERED=1 \
    COSYVOICE_STREAM_HOST=0.0.0.0 \
    COSYVOICE_STREAM_VOICES_DIR=/data/voices
USER voice
WORKDIR /home/voice
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD python -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"
CMD ["cosyvoice-stream", "serve"]
