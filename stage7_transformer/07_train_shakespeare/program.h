// What the program does beside training: it reads the command line and the text, writes with a
// model, tests one, and holds a training against what this step promises.
#pragma once

#include <string>

#include <vector>

#include "common/options.h"
#include "common/report.h"
#include "stage7_transformer/07_train_shakespeare/reference.h"
#include "stage7_transformer/07_train_shakespeare/sampling.h"
#include "stage7_transformer/07_train_shakespeare/settings.h"
#include "stage7_transformer/07_train_shakespeare/shakespeare_data.h"
#include "stage7_transformer/07_train_shakespeare/training.h"

namespace train_shakespeare {

inline constexpr size_t kWritten = 200;  // characters, unless asked for others

// ---- The command line -------------------------------------------------------------------------

// A version that is run, and what its blocks multiply.
struct ChosenVersion {
  Version<Launch> version;
  Precision precision;
};
// Of --version and --precision: those that run, in the order of the table. Without either these are
// the versions in float, and for the medium model those in bf16, too. Where there is one model to
// train it is the best one.
std::vector<ChosenVersion> versions_of(const Options& options);

// --config, or --size, or what is usual where the program runs. All four throw UsageError.
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

// The same of a training in bf16 beside one in float whose loss was `of_fp32`; 0: there was none.
// "validation 2.380, promised within 1% of 2.341"
std::string missed_beside(const Options& options, const Settings& settings, const Data& data,
                          double validation, double of_fp32);

void show_text(const std::string& prompt, const std::string& written, Report& report);

// --generate: writes with the model of --checkpoint.
void generate(const Options& options, Report& report);
// --evaluate: the loss of a checkpoint on the text that is not trained on.
void evaluate(const Options& options, const Data& data, Report& report);

}  // namespace train_shakespeare
