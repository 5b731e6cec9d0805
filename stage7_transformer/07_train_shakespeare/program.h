// What the program does beside training: it reads the command line and the text, writes with a
// model, tests one, and holds a training against what this step promises.
#pragma once

#include <string>

#include "common/options.h"
#include "common/report.h"
#include "stage7_transformer/07_train_shakespeare/sampling.h"
#include "stage7_transformer/07_train_shakespeare/settings.h"
#include "stage7_transformer/07_train_shakespeare/shakespeare_data.h"

namespace train_shakespeare {

inline constexpr size_t kWritten = 200;  // characters, unless asked for others

// ---- The command line -------------------------------------------------------------------------

// --config, or --size, or what is usual where the program runs. All three throw UsageError.
Settings settings_of(const Options& options);
// Of --temperature, --top-k and --seed.
Sampling sampling_of(const Options& options);
// A new line where nothing else is asked for; a text may have none.
std::string prompt_of(const Options& options, const shakespeare::Vocabulary& vocabulary);

// ---- Data -------------------------------------------------------------------------------------

inline constexpr const char* kRealText = "Tiny Shakespeare";

struct Data {
  shakespeare::Corpus corpus;
  std::string name;  // kRealText, or what it is in its place
};

// Tiny Shakespeare where it is. A folder that was asked for must have it; else a play is made up.
// Throws UsageError where it can't be read.
Data find_data(const Options& options, Report& report);

// ---- What was learnt --------------------------------------------------------------------------

// "loss 2.310, validation 2.350, promised 2.200", or nothing where the promise is kept or there is
// none. `validation` is the loss on the text that is not trained on.
std::string missed(const Options& options, const Settings& settings, const Data& data, double loss,
                   double validation);

void show_text(const std::string& prompt, const std::string& written, Report& report);

// --generate: writes with the model of --checkpoint.
void generate(const Options& options, Report& report);
// --evaluate: the loss of a checkpoint on the text that is not trained on.
void evaluate(const Options& options, const Data& data, Report& report);

}  // namespace train_shakespeare
