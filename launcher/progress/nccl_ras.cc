#include "launcher/progress/nccl_ras.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "boost/json/parse.hpp"
#include "launcher/progress/worker_activity.h"
#include "net/endpoint.h"
#include "net/local_host.h"
#include "net/tcp_connect.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

constexpr int kPort = 28028;
constexpr size_t kMaxBytes = size_t{16} << 20;
// Other jobs of the host may listen on the port, too, and the system chooses one of them.
constexpr int kAttempts = 4;

// A rank of a communicator in an answer.
struct RankCounts {
  uint64_t launched = 0;
  pid_t pid = 0;
  bool own = false;
};

std::vector<RankCounts> RanksOf(const boost::json::object& communicator, const std::set<pid_t>& pids,
                                const std::set<std::string>& addresses) {
  std::vector<RankCounts> ranks;
  for (const boost::json::value& v : communicator.at("ranks").as_array()) {
    const boost::json::object& in = v.as_object();
    RankCounts& rank = ranks.emplace_back();
    for (const auto& [name, count] : in.at("collective_counts").as_object()) {
      rank.launched += count.to_number<uint64_t>();
    }
    rank.pid = in.at("pid").to_number<pid_t>();
    const boost::json::string& host = in.at("host").as_string();
    rank.own = pids.contains(rank.pid) && addresses.contains(std::string(host.data(), host.size()));
  }
  return ranks;
}

// What a communicator says of a process.
void Add(const RankCounts& rank, uint64_t least, uint64_t most, RasCounts& counts) {
  counts.launched += rank.launched;
  if (least == most) return;
  const bool waits = rank.launched > least;
  if (counts.waits && (*counts.waits || !waits)) return;
  counts.waits = waits;
  counts.number = static_cast<int64_t>(std::min<uint64_t>(rank.launched, INT64_MAX)) - 1;
}

// The text from a connection until the peer closes it.
absl::StatusOr<std::string> ReadAll(int fd, TimePoint deadline) {
  std::string text;
  std::array<char, 16384> part;
  for (;;) {
    RETURN_IF_ERROR(PollUntil(fd, POLLIN, deadline));
    const ssize_t n = recv(fd, part.data(), part.size(), 0);
    if (n == 0) return text;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n < 0) return absl::UnavailableError(absl::StrCat("NCCL's RAS: ", std::strerror(errno)));
    text.append(part.data(), static_cast<size_t>(n));
    if (text.size() > kMaxBytes) return absl::InvalidArgumentError("the answer of NCCL's RAS is too long");
  }
}

absl::StatusOr<std::string> Ask(const Endpoint& at, TimePoint deadline) {
  ASSIGN_OR_RETURN(const int connected, TcpConnect(at.host, at.port, deadline));
  const UniqueFd fd(connected);
  // A second for the processes of the job, so that the answer comes before the deadline.
  static constexpr absl::string_view kQuestion =
      "CLIENT PROTOCOL 2\nTIMEOUT 1\nSET FORMAT json\nVERBOSE STATUS\n";
  const ssize_t sent = send(fd.get(), kQuestion.data(), kQuestion.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(kQuestion.size()))
    return absl::UnavailableError("NCCL's RAS does not read the question");
  return ReadAll(fd.get(), deadline);
}

}  // namespace

absl::StatusOr<std::map<pid_t, RasCounts>> ParseRas(absl::string_view answer, const std::set<pid_t>& pids,
                                                    const std::set<std::string>& addresses) {
  const size_t begin = answer.find('{');  // after lines such as "SERVER PROTOCOL 2"
  if (begin == absl::string_view::npos)
    return absl::InvalidArgumentError("NCCL's RAS does not answer in JSON");
  answer.remove_prefix(begin);
  boost::system::error_code error;
  const boost::json::value page = boost::json::parse({answer.data(), answer.size()}, error);
  if (error)
    return absl::InvalidArgumentError(absl::StrCat("NCCL's RAS does not answer in JSON: ", error.message()));
  try {
    std::map<pid_t, RasCounts> all;
    for (const boost::json::value& v : page.as_object().at("communicators").as_array()) {
      const std::vector<RankCounts> ranks = RanksOf(v.as_object(), pids, addresses);
      if (ranks.empty()) continue;
      const auto [least, most] = std::minmax_element(
          ranks.begin(), ranks.end(),
          [](const RankCounts& a, const RankCounts& b) { return a.launched < b.launched; });
      for (const RankCounts& rank : ranks) {
        if (rank.own) Add(rank, least->launched, most->launched, all[rank.pid]);
      }
    }
    return all;
  } catch (const std::exception& e) {  // from Boost.JSON: a member is missing or has the wrong type
    return absl::InvalidArgumentError(
        absl::StrCat("the answer of NCCL's RAS has an unknown format: ", e.what()));
  }
}

absl::StatusOr<std::map<pid_t, RasCounts>> AskRas(const std::set<pid_t>& pids, Duration limit) {
  const TimePoint deadline = std::chrono::steady_clock::now() + limit;
  const char* const given = std::getenv("NCCL_RAS_ADDR");
  ASSIGN_OR_RETURN(const Endpoint at, ParseEndpoint(given == nullptr ? "localhost" : given, kPort));
  std::set<std::string> addresses;
  for (const InterfaceAddress& address : InterfaceAddresses()) addresses.insert(address.address);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    ASSIGN_OR_RETURN(const std::string answer, Ask(at, deadline));
    ASSIGN_OR_RETURN(auto counts, ParseRas(answer, pids, addresses));
    if (!counts.empty()) return counts;
  }
  return absl::UnavailableError("NCCL's RAS at this host knows none of the workers");
}

std::optional<std::map<pid_t, RasCounts>> AskRasOfWorkers(const std::vector<pid_t>& workers, Duration limit) {
  std::map<pid_t, pid_t> worker_of;
  std::set<pid_t> pids;
  for (const pid_t worker : workers) {
    for (const pid_t pid : ProcessesOf(worker)) {
      pids.insert(pid);
      worker_of.emplace(pid, worker);
    }
  }
  const auto counts = AskRas(pids, limit);
  if (!counts.ok()) return std::nullopt;
  std::map<pid_t, RasCounts> result;
  for (const auto& [pid, of_process] : *counts) result.emplace(worker_of.at(pid), of_process);
  return result;
}

std::optional<WorkerEvidence::Operation> OperationOf(const RasCounts& counts) {
  if (!counts.waits) return std::nullopt;
  return WorkerEvidence::Operation{
      .kind = "a collective of NCCL", .number = counts.number, .in_flight = *counts.waits};
}

}  // namespace ddprun
