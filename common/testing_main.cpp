// The main function of the tests, where Catch2 is the single header of version 2. An installed
// Catch2 brings its own as Catch2::Catch2WithMain.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
