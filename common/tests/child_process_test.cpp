// Programs that are started: what they say, how they end, and that none is left.
#include "common/child_process.h"

#include <signal.h>

#include <chrono>
#include <thread>

#include "common/testing.h"
#include "common/tests/emulator.h"

using child_process::Ended;
using child_process::run;

TEST_CASE("both streams and the exit code of a program are known") {
  const Ended result = run({"sh", "-c", "echo one; echo two >&2; exit 3"}, 10, "/tmp");
  CHECK(result.exit_code == 3);
  CHECK(result.output == "one\ntwo\n");
  CHECK(!result.is_too_slow);
  CHECK(run({"sh", "-c", "kill -9 $$"}, 10, "/tmp").exit_code == -1);
  CHECK(run({"sh", "-c", "cat; echo $TMPDIR $LC_ALL"}, 10, "/tmp/x").output == "/tmp/x C\n");
  CHECK(run({"echo", "$HOME `ls` 'a b'"}, 10, "/tmp").output == "$HOME `ls` 'a b'\n");
}

TEST_CASE("a program that is not there is one line") {
  if (emulator::leaves_out(emulator::kMissingProgram)) return;
  CHECK(testing::what_of<std::runtime_error>([] { run({"no_such_program"}, 10, "/tmp"); }) ==
        "no_such_program is not found");
  CHECK(testing::what_of<std::runtime_error>([] { run({"/tmp"}, 10, "/tmp"); }) ==
        "/tmp cannot be started: Permission denied");
}

TEST_CASE("a program that takes too long is ended with all that it has started") {
  const auto begin = std::chrono::steady_clock::now();
  const Ended result = run({"sh", "-c", "sleep 60 & echo $!; sleep 60"}, 0.3, "/tmp");
  CHECK(result.is_too_slow);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
  const pid_t grandchild = std::stoi(result.output);
  int alive = 0;  // it is gone once the system has buried it
  for (int i = 0; i < 500 && (alive = kill(grandchild, 0)) == 0; ++i) {
    const std::string state =
        run({"ps", "-o", "stat=", "-p", std::to_string(grandchild)}, 10, "/tmp").output;
    if (state.empty() || state[0] == 'Z') break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(i < 499);
  }
}

TEST_CASE("signals that this process ignores or holds back reach the program") {
  sigset_t some, before;
  sigemptyset(&some);
  sigaddset(&some, SIGTERM);
  REQUIRE(sigprocmask(SIG_BLOCK, &some, &before) == 0);
  const auto handler = signal(SIGPIPE, SIG_IGN);
  CHECK(run({"sh", "-c", "kill -TERM $$; echo lives"}, 10, "/tmp").output == "");
  CHECK(run({"sh", "-c", "kill -PIPE $$; echo lives"}, 10, "/tmp").output == "");
  signal(SIGPIPE, handler);
  sigprocmask(SIG_SETMASK, &before, nullptr);
}
