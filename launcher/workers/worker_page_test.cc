// The memory in which workers show the operation that they wait for.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/operation_page.h"
#include "base/worker_evidence.h"
#include "base/worker_message.h"
#include "gtest/gtest.h"
#include "launcher/workers/testing/worker_socket_fixture.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

class PageTest : public WorkerSocketTest {
 protected:
  // Memory with one page.
  static UniqueFd Page(OperationKind kind, uint64_t number, bool in_flight) {
    OperationPage page;
    page.version = OperationPage::kVersion;
    page.waiting = in_flight ? 1 : 0;
    page.operation = OperationPage::Pack(kind, number);
    page.waited = number * 1000;
    UniqueFd fd(memfd_create("test", MFD_CLOEXEC));
    EXPECT_EQ(write(fd.get(), &page, sizeof(page)), static_cast<ssize_t>(sizeof(page)));
    return fd;
  }
  // Sends `packet` with the descriptors.
  static void SendWith(int fd, std::string packet, const std::vector<int>& descriptors) {
    iovec bytes = {.iov_base = packet.data(), .iov_len = packet.size()};
    std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
    ASSERT_EQ(sendmsg(fd, &message, 0), static_cast<ssize_t>(packet.size())) << std::strerror(errno);
  }
  static std::string PageOf(int local_rank) { return Encode(WorkerPage{LocalRank(local_rank)}); }
  // Handles all packets that this connection has sent.
  void Settle(int fd) {
    Send(fd, Report(1, 99, ++settled_));
    RunUntilStep(1, 99, settled_);
  }
  int settled_ = 0;
};

TEST_F(PageTest, ReadsTheOperationOfEachWorker) {
  EXPECT_EQ(socket_->Operation(LocalRank(0), getpid()), std::nullopt);
  const int fd = Connect();
  const int other = Connect();
  UniqueFd page = Page(OperationKind::kAllReduce, 7, true);
  SendWith(fd, PageOf(0), {page.get()});
  SendWith(other, PageOf(1), {Page(OperationKind::kBarrier, 8, false).get()});
  Settle(fd);
  Settle(other);
  EXPECT_EQ(socket_->Operation(LocalRank(0), getpid()),
            (WorkerEvidence::Operation{.kind = "all-reduce", .number = 7, .in_flight = true}));
  EXPECT_EQ(socket_->Operation(LocalRank(1), getpid()),
            (WorkerEvidence::Operation{.kind = "barrier", .number = 8, .in_flight = false}));
  EXPECT_EQ(socket_->Operation(LocalRank(2), getpid()), std::nullopt);
  EXPECT_EQ(socket_->Waited(LocalRank(1), getpid()), Duration(8000));
  EXPECT_EQ(socket_->Waited(LocalRank(2), getpid()), std::nullopt);

  ASSERT_EQ(ftruncate(page.get(), 3), 0);
  EXPECT_EQ(socket_->Operation(LocalRank(0), getpid()), std::nullopt)
      << "the worker has shortened its memory";
  close(other);
  close(fd);
}

TEST_F(PageTest, ANewProcessReplacesThePageOfItsPredecessor) {
  const int old = Connect();
  SendWith(old, PageOf(0), {Page(OperationKind::kAllReduce, 7, true).get()});
  Settle(old);
  const int next = Connect();
  SendWith(next, PageOf(0), {Page(OperationKind::kAllReduce, 1, true).get()});
  Settle(next);
  EXPECT_EQ(socket_->Operation(LocalRank(0), getpid())->number, 1);
  close(old);
  close(next);
}

TEST_F(PageTest, DescriptorsThatAreNoMemoryOrComeWithOtherPacketsAreClosed) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const int fd = Connect();
  Settle(fd);
  SendWith(fd, PageOf(0), {ends[1]});
  SendWith(fd, PageOf(0), {ends[1], ends[1], ends[1]});
  SendWith(fd, Report(1, 0, 1), {ends[1]});
  SendWith(fd, "garbage", {ends[1]});
  Send(fd, PageOf(0));
  Settle(fd);
  EXPECT_EQ(socket_->Operation(LocalRank(0), getpid()), std::nullopt);
  close(ends[1]);
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), 0) << "no copy of the writing end is open";
  close(ends[0]);
  close(fd);
}

}  // namespace
}  // namespace ddprun
