# The course with AMD's ROCm. It builds when it first runs, for the GPU that is there, into a volume:
#
#   docker build -t course-rocm -f containers/rocm.Dockerfile .
#   docker run --rm --device /dev/kfd --device /dev/dri --security-opt seccomp=unconfined \
#     -v course-rocm:/course/build course-rocm
#
# It has not been tried on a GPU.

FROM rocm/dev-ubuntu-24.04:7.1.1-complete
COPY scripts/package_names.sh scripts/packages.txt /tmp/packages/
RUN apt-get update \
 && apt-get install -y --no-install-recommends $(/tmp/packages/package_names.sh base cpu container) \
 && rm -rf /var/lib/apt/lists/* /tmp/packages
WORKDIR /course
COPY . .
ENTRYPOINT ["scripts/course"]
CMD ["run", "--no-setup", "--backend", "hip"]
