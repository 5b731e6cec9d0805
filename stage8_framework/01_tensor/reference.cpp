#include "stage8_framework/01_tensor/reference.h"

namespace tensor {

std::size_t source_of(const Case& c, std::size_t i) {
  const std::size_t planes = c.N * c.C, pixels = c.H * c.W;
  switch (c.view) {
    case Arrangement::contiguous:
      return i;
    case Arrangement::channels_last: {  // i = ((n H + h) W + w) C + c
      const std::size_t channel = i % c.C, pixel = i / c.C % pixels, image = i / c.C / pixels;
      return (image * c.C + channel) * pixels + pixel;
    }
    case Arrangement::transposed:  // i = pixel planes + plane
      return i % planes * pixels + i / planes;
    case Arrangement::reversed: {  // i = (w H + h) planes + plane
      const std::size_t plane = i % planes, row = i / planes % c.H, column = i / planes / c.H;
      return (plane * c.H + row) * c.W + column;
    }
    case Arrangement::per_plane:
      return i / pixels;
    case Arrangement::one_plane:
      return i % pixels;
    case Arrangement::sliced: {  // a row has every second of W columns, the first one too
      const std::size_t columns = (c.W + 1) / 2;
      return i / columns * c.W + i % columns * 2;
    }
  }
  return 0;
}

}  // namespace tensor
