#include "worker_sdk/comm/host/pair_ring.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ddprun/status.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

UniqueFd NewMemory(size_t num_bytes) {
  UniqueFd fd(memfd_create("pair_ring_test", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(num_bytes)), 0);
  return fd;
}

// Byte `i` of message `number`.
char Byte(uint64_t number, size_t i) { return static_cast<char>(number * 31 + i * 7 + (i >> 8)); }

// The size of message `number`: equal at both ends.
size_t SizeOf(uint64_t number) {
  std::mt19937 random(static_cast<unsigned>(number));
  return random() % 8 == 0 ? random() % (3 * PairRing::kCapacity) : random() % 200;
}

// Sends message `number`. Waits for room.
void Send(PairRing& ring, uint64_t number) {
  std::string bytes(SizeOf(number), '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = Byte(number, i);
  size_t num_sent = 0;
  while (num_sent < bytes.size()) {
    const size_t n = std::min(ring.Room(bytes.size() - num_sent), bytes.size() - num_sent);
    if (n == 0) {
      std::this_thread::yield();
      continue;
    }
    ring.Put(bytes.data() + num_sent, n);
    num_sent += n;
    if (num_sent == bytes.size()) ring.EndMessage();
    ring.Publish();
  }
}

// Takes what is available of message `number` and appends it to `bytes`. Returns true if the message is complete.
bool Receive(PairRing& ring, uint64_t number, std::string& bytes) {
  const size_t old = bytes.size();
  const size_t n = std::min(ring.Available(), SizeOf(number) - old);
  bytes.resize(old + n);
  ring.Take(bytes.data() + old, n);
  const bool complete = bytes.size() == SizeOf(number);
  if (complete) ring.EndMessage();
  if (n > 0) ring.Release();
  return complete;
}

std::string FirstDifference(uint64_t number, const std::string& bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != Byte(number, i)) return "byte " + std::to_string(i) + " of " + std::to_string(number);
  }
  return "";
}

TEST(PairRingTest, MessagesArriveCompleteAndInOrder) {
  const UniqueFd fd = NewMemory(PairRing::kBytes);
  const auto memory = PairRingMemory::Map(fd.get(), 0);
  ASSERT_TRUE(memory.ok()) << memory.status();
  constexpr uint64_t kMessages = 300;
  std::thread sender([&] {
    PairRing ring(memory->get());
    for (uint64_t m = 0; m < kMessages; ++m) Send(ring, m);
  });
  PairRing ring(memory->get());
  for (uint64_t m = 0; m < kMessages; ++m) {
    std::string bytes;
    while (!Receive(ring, m, bytes)) std::this_thread::yield();
    ASSERT_EQ(FirstDifference(m, bytes), "");
  }
  sender.join();
  EXPECT_EQ(ring.Available(), 0u);
}

TEST(PairRingTest, AFullRingHasNoRoomAndLosesNothing) {
  const UniqueFd fd = NewMemory(PairRing::kBytes);
  const auto memory = PairRingMemory::Map(fd.get(), 0);
  ASSERT_TRUE(memory.ok()) << memory.status();
  for (const size_t size : {1, 63, 64, 65, 1000}) {
    PairRing sender(memory->get()), receiver(memory->get());
    std::memset(memory->get(), 0, PairRing::kBytes);
    const std::string message(size, 'm');
    size_t num_sent = 0;
    while (sender.Room(size) >= size) {
      sender.Put(message.data(), size);
      sender.EndMessage();
      sender.Publish();
      ++num_sent;
    }
    const size_t padded = (size + PairRing::kAlign - 1) / PairRing::kAlign * PairRing::kAlign;
    EXPECT_GE(num_sent, PairRing::kCapacity / padded - 1) << size;
    EXPECT_LE(num_sent, PairRing::kCapacity / padded) << size;
    for (size_t i = 0; i < num_sent; ++i) {
      std::string bytes(size, '\0');
      ASSERT_GE(receiver.Available(), size);
      receiver.Take(bytes.data(), size);
      receiver.EndMessage();
      ASSERT_EQ(bytes, message) << i;
    }
    EXPECT_EQ(receiver.Available(), 0u) << size;
    EXPECT_LT(sender.Room(size), size) << "nothing was released";
    receiver.Release();
    EXPECT_GE(sender.Room(size), size);
  }
}

TEST(PairRingTest, WhatAKilledSenderHasPublishedArrives) {
  for (int i = 0; i < 20; ++i) {
    const UniqueFd fd = NewMemory(PairRing::kBytes);
    const auto memory = PairRingMemory::Map(fd.get(), 0);
    ASSERT_TRUE(memory.ok()) << memory.status();
    const pid_t sender = fork();
    ASSERT_GE(sender, 0);
    if (sender == 0) {
      PairRing ring(memory->get());
      for (uint64_t m = 0;; ++m) Send(ring, m);
    }
    PairRing ring(memory->get());
    uint64_t number = 0;
    std::string bytes, fault;
    const auto receive = [&] {
      if (!Receive(ring, number, bytes)) return;
      if (fault.empty()) fault = FirstDifference(number, bytes);
      bytes.clear();
      ++number;
    };
    while (number < 5 + static_cast<uint64_t>(i)) receive();
    ASSERT_EQ(kill(sender, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(sender, &status, 0), sender);
    ASSERT_TRUE(WIFSIGNALED(status));
    while (ring.Available() > 0) receive();
    EXPECT_EQ(fault, "");
    EXPECT_EQ(FirstDifference(number, bytes), "");  // of the message that is not complete
  }
}

void WriteFile(const char* name, const std::string& text) {
  const UniqueFd fd(open(name, O_WRONLY | O_CLOEXEC));
  (void)WriteAll(fd.get(), text);
}

// Mounts a file system of 64 KiB at `dir`, for this process only. Returns false if this user may not do that.
bool EnterSmallFileSystem(const std::string& dir) {
  const std::string user = "0 " + std::to_string(geteuid()) + " 1",
                    group = "0 " + std::to_string(getegid()) + " 1";
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  WriteFile("/proc/self/uid_map", user);
  WriteFile("/proc/self/setgroups", "deny");
  WriteFile("/proc/self/gid_map", group);
  return mount("none", dir.c_str(), "tmpfs", 0, "size=64k") == 0;
}

// The child exits with 77 if this user may not mount a file system.
TEST(PairRingTest, MemoryThatDoesNotExistIsAnError) {
  const std::string dir = testing::TempDir();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!EnterSmallFileSystem(dir)) _exit(77);
    const UniqueFd fd(open((dir + "/ring").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (ftruncate(fd.get(), 2 * PairRing::kBytes) != 0) _exit(1);
    const Status status = PairRingMemory::Map(fd.get(), PairRing::kBytes).status();
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    const std::string expected =
        "RESOURCE_EXHAUSTED: a queue between two ranks of a node needs 266240 bytes of shared memory: "
        "No space left on device";
    _exit(status.ToString() == expected ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this user may not mount a file system";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace ddprun
