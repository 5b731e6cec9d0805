// What every training must do, whatever it trains: for the tests of 5.6, 5.8, 6.4 and 7.7.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/testing.h"
#include "common/tests/programs.h"
#include "stage5_training/06_train_toy/epochs.h"

namespace trainer_test {

using train_toy::Trainer;

// The losses of the next `steps` steps, which train(training, version, count) takes.
template <class T, class Version>
std::vector<float> losses_of(T& training, Version version, std::size_t steps) {
  return train_toy::next_losses(
      training, [&](std::size_t count) { train(training, version, count); }, steps);
}

// A training that is resumed after `first` steps takes `more` with the bits of one that went on.
// make() makes a new one, queue(t, steps) queues its steps.
template <class Make, class Queue>
void require_resumes(std::size_t first, std::size_t more, Make make, Queue queue) {
  const tests::Folder folder;
  const std::string path = folder / "model.safetensors";
  auto whole = make(), resumed = make();
  queue(*whole, first);
  whole->save(path);
  queue(*whole, more);
  queue(*resumed, 3);  // what is resumed must not depend on what was before
  resumed->resume(path);
  REQUIRE(resumed->steps == first);
  queue(*resumed, more);
  REQUIRE(testing::same_bits(resumed->parameters(), whole->parameters()));
  // The curve begins behind the checkpoint.
  const std::vector<float> got = resumed->losses(), want = whole->losses();
  for (std::uint64_t step = first; step < first + more; ++step)
    REQUIRE(got[step % got.size()] == want[step % want.size()]);
  resumed->save(path);
  const std::string saved = tests::read_file(path);
  whole->save(path);
  REQUIRE(saved == tests::read_file(path));
}

// A file that is not this training's is refused in one line that has `words` and the file's name,
// and nothing has changed.
inline void require_refused(Trainer& to, const std::string& file, const std::string& words) {
  const std::vector<float> parameters = to.parameters();
  const std::uint64_t steps = to.steps;
  std::string said;
  try {
    to.resume(file);
  } catch (const std::runtime_error& error) {
    said = error.what();
  }
  CAPTURE(file, said);
  REQUIRE(contains_text(said, words));
  REQUIRE(contains_text(said, file));
  REQUIRE(said.find('\n') == std::string::npos);
  REQUIRE(to.steps == steps);
  REQUIRE(testing::same_bits(to.parameters(), parameters));
}

// So are a file that is not there, and this one's beginnings. each(path) looks at these, too.
template <class Each>
void require_damage_refused(Trainer& to, const std::string& path, Each each) {
  require_refused(to, path + ".missing", "");
  const std::string whole = tests::read_file(path), damaged = path + ".damaged";
  for (std::size_t length = 0; length < whole.size(); length += 1 + length / 12) {
    tests::write_file(damaged, whole.substr(0, length));
    require_refused(to, damaged, "");
    each(damaged);
  }
}
inline void require_damage_refused(Trainer& to, const std::string& path) {
  require_damage_refused(to, path, [](const std::string&) {});
}

// The parameters after the first steps, which queue() queues.
template <class Queue>
std::vector<float> parameters_after(Trainer& t, Queue queue) {
  t.restart();
  queue();
  return t.parameters();
}

// They are `want` but for roundings, and the same bits again. Adam makes a full step even of a
// gradient that is nothing but rounding: of its parameters one of `most` may be elsewhere.
template <class Queue>
void require_agrees(Trainer& t, const std::vector<float>& want, std::size_t most, Queue queue) {
  constexpr float kRounding = 2e-5f;
  const std::vector<float> got = parameters_after(t, queue);
  std::size_t apart = 0;
  for (std::size_t i = 0; i < want.size(); ++i)
    if (!(std::fabs(got[i] - want[i]) <= kRounding)) ++apart;
  REQUIRE(apart <= (optimizers::states(t.settings.kind) == 2 ? want.size() / most : 0));
  REQUIRE(testing::same_bits(parameters_after(t, queue), got));  // deterministic
}

}  // namespace trainer_test
