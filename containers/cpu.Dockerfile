# The course on its CPU backend, for x86-64 and arm64, Apple's laptops among them. From the repository's root:
#
#   docker build -t course-cpu -f containers/cpu.Dockerfile .
#   docker run --rm course-cpu                                   every step at small sizes, then the table
#   mkdir -p workspace
#   docker run --rm -it -v "$PWD/workspace:/course/workspace" course-cpu start 0.6
#   docker run --rm -it -v "$PWD/workspace:/course/workspace" course-cpu watch

# The tools alone, which is all that .devcontainer/ needs.
FROM debian:bookworm-20251229-slim AS tools
COPY scripts/package_names.sh scripts/packages.txt /tmp/packages/
RUN apt-get update \
 && apt-get install -y --no-install-recommends $(/tmp/packages/package_names.sh base cpu container) \
 && rm -rf /var/lib/apt/lists/* /tmp/packages
RUN useradd --create-home --shell /bin/bash learner

# An image is built on one machine and runs on others: no instruction that only some processors have.
FROM tools
ARG COMMIT=unknown
WORKDIR /course
COPY --chown=learner . .
RUN chown learner /course
USER learner
RUN cmake --preset cpu -DCOURSE_NATIVE=OFF -DCOURSE_COMMIT=$COMMIT \
 && scripts/course run --no-setup -- --list
ENTRYPOINT ["scripts/course"]
CMD ["run", "--quick", "--no-setup"]
