# The course with NVIDIA's CUDA toolkit. It builds when it first runs, for the GPU that is there, into a volume:
#
#   docker build -t course-cuda -f containers/cuda.Dockerfile .
#   docker run --rm --gpus all -v course-cuda:/course/build course-cuda

FROM nvidia/cuda:13.0.1-devel-ubuntu24.04
COPY scripts/package_names.sh scripts/packages.txt /tmp/packages/
RUN apt-get update \
 && apt-get install -y --no-install-recommends $(/tmp/packages/package_names.sh base cpu container) \
 && rm -rf /var/lib/apt/lists/* /tmp/packages
WORKDIR /course
COPY . .
ENTRYPOINT ["scripts/course"]
CMD ["run", "--no-setup", "--backend", "cuda"]
