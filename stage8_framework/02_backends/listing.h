// Who is there, and who can run what: what the program prints before its tables.
#pragma once

#include <string>

#include "common/report.h"

namespace backends {

// Whether a plug-in of this name is there and has the operation.
bool has_operation(const std::string& plugin, const char* op);

// A line for each plug-in and its devices, or why it was refused; a line for each operation.
void show_backends(Report& report);

// The rows of kOps as a Markdown table, in a file that is replaced at once. Throws UsageError where
// it can't be written.
void write_operations(const std::string& file);

}  // namespace backends
