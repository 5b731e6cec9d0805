#include "common/testing.h"
