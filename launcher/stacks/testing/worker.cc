#include "launcher/stacks/testing/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "launcher/process/process_tree.h"

namespace ddprun {
namespace {

constexpr int kWaitMs = 20'000;

bool Await(const std::function<bool()>& condition) {
  for (int waited = 0; waited < kWaitMs; ++waited) {
    if (condition()) return true;
    poll(nullptr, 0, 1);
  }
  return false;
}

}  // namespace

std::string NewFolder() {
  std::string folder = absl::StrCat(testing::TempDir(), "/stacks.XXXXXX");
  EXPECT_NE(mkdtemp(folder.data()), nullptr) << folder;
  return folder;
}

void WriteScript(const std::string& path, const std::string& body) {
  std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
  chmod(path.c_str(), 0755);
}

void CopyWorker(const std::string& path) {
  std::filesystem::copy_file("launcher/stacks/known_function", path);
}

Worker::Worker(const Options& options) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) std::abort();
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in[0], 0);
  posix_spawn_file_actions_adddup2(&files, out[1], 1);
  const std::string threads = absl::StrCat(options.threads);
  char* const argv[] = {const_cast<char*>("worker"), const_cast<char*>(threads.c_str()), nullptr};
  std::vector<char*> env;
  for (const std::string& variable : options.env) env.push_back(const_cast<char*>(variable.c_str()));
  env.push_back(nullptr);
  if (posix_spawn(&pid_, options.program.c_str(), &files, nullptr, argv, env.data()) != 0) pid_ = -1;
  posix_spawn_file_actions_destroy(&files);
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
  char ready = 0;
  EXPECT_EQ(read(from_, &ready, 1), 1) << options.program << " does not start";
}

Worker::~Worker() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(to_);
  close(from_);
}

bool Worker::Answers() {
  char byte = 'a';
  if (write(to_, &byte, 1) != 1) return false;
  pollfd fd = {.fd = from_, .events = POLLIN, .revents = 0};
  return poll(&fd, 1, kWaitMs) == 1 && read(from_, &byte, 1) == 1;
}

bool AwaitState(pid_t pid, char state) {
  return Await([&] {
    const auto process = ReadProcess(pid);
    return process && process->state == state;
  });
}

bool AwaitEnd(pid_t pid) {
  return Await([&] {
    const auto process = ReadProcess(pid);
    return !process || process->dead();
  });
}

}  // namespace ddprun
