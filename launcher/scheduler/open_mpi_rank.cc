#include "launcher/scheduler/open_mpi_rank.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/scheduler/variables.h"

namespace ddprun {
namespace {

constexpr char kStarter[] = "mpirun";
constexpr char kSize[] = "OMPI_COMM_WORLD_SIZE";
constexpr char kRank[] = "OMPI_COMM_WORLD_RANK";
constexpr char kLocalSize[] = "OMPI_COMM_WORLD_LOCAL_SIZE";
// The contact address of mpirun, and that of the daemon that has started this process. They are equal on the node of mpirun.
constexpr char kMpirunUri[] = "OMPI_MCA_orte_hnp_uri";
constexpr char kDaemonUri[] = "OMPI_MCA_orte_local_daemon_uri";
constexpr char kBound[] = "OMPI_MCA_orte_bound_at_launch";
// On a CPU with two threads per core, mpirun binds a process to two CPUs.
constexpr int kCpusOfACore = 2;

struct Contact {
  std::string job = {};                     // "1096155136"
  std::vector<std::string> addresses = {};  // numeric
  std::string port = {};                    // of the first address
};

// Parses "1096155136.0;tcp://10.0.0.1,10.1.0.1:59671;tcp6://[fd00::1]:60629". A part of another form is skipped.
Contact ParseUri(absl::string_view uri) {
  const std::vector<absl::string_view> parts = absl::StrSplit(uri, ';');
  Contact contact = {.job = std::string(parts[0].substr(0, parts[0].find('.')))};
  for (size_t i = 1; i < parts.size(); ++i) {
    absl::string_view part = parts[i];
    if (!absl::ConsumePrefix(&part, "tcp://") && !absl::ConsumePrefix(&part, "tcp6://")) continue;
    const size_t colon = part.rfind(':');
    if (colon == absl::string_view::npos) continue;
    if (contact.port.empty()) contact.port = std::string(part.substr(colon + 1));
    part = part.substr(0, colon);
    if (absl::ConsumePrefix(&part, "[")) absl::ConsumeSuffix(&part, "]");
    for (const absl::string_view address : absl::StrSplit(part, ',', absl::SkipEmpty())) {
      contact.addresses.emplace_back(address);
    }
  }
  return contact;
}

// Returns the error for a job whose ranks do not know the address of rank 0; OK if they may know it.
absl::Status AddressIsKnown(const GetEnv& get_env, const Contact& contact, int rank, int size) {
  const std::string uri = ValueOf(get_env, kMpirunUri);
  const std::string remedy = absl::StrCat("ddprun --nnodes=", size,
                                          " --rdzv-endpoint=HOST, where HOST is one of the nodes of the job");
  if (contact.addresses.empty()) {
    return BadVariable(
        kMpirunUri, uri,
        "expected the address of mpirun, at which the ranks look for rank 0: write mpirun --map-by "
        "ppr:1:node ",
        remedy);
  }
  const bool with_mpirun = ValueOf(get_env, kDaemonUri) == uri;
  if (with_mpirun == (rank == 0)) return absl::OkStatus();
  return BadVariable(kMpirunUri, uri,
                     "the ranks look for rank 0 at this address, that of mpirun, but rank 0 is on another "
                     "node: start mpirun on the first node of the job, or write mpirun --map-by ppr:1:node ",
                     remedy);
}

}  // namespace

absl::StatusOr<std::optional<ScheduledJob>> FindOpenMpiRank(const GetEnv& get_env, int num_cpus) {
  if (ValueOf(get_env, kSize).empty()) return std::nullopt;
  ScheduledJob found = {.scheduler = kOpenMpiName,
                        .id_variable = kMpirunUri,
                        .hosts_variable = kMpirunUri,
                        .node_variable = kRank};
  ASSIGN_OR_RETURN(const int size, NumberIn(get_env, kSize, 1, kMaxScheduledNodes, kStarter));
  ASSIGN_OR_RETURN(found.node, NumberIn(get_env, kRank, 0, size - 1, kStarter));
  ASSIGN_OR_RETURN(const int local_size, NumberIn(get_env, kLocalSize, 1, size, kStarter));
  found.size.push_back({"nnodes", absl::StrCat(size), kSize});
  if (local_size > 1) {
    found.one_per_node = BadVariable(
        kLocalSize, absl::StrCat(local_size), "mpirun starts ddprun ", local_size,
        " times on a node, but ddprun starts the workers of a node itself: write mpirun --map-by ppr:1:node "
        "--bind-to none ddprun --nproc-per-node=",
        local_size);
  }
  Contact contact = ParseUri(ValueOf(get_env, kMpirunUri));
  found.address_known = AddressIsKnown(get_env, contact, found.node, size);
  found.id = absl::StrCat(contact.job, ".", contact.port);
  found.first_host = std::move(contact.addresses);
  if (ValueOf(get_env, kBound) == "1" && num_cpus <= kCpusOfACore) {
    found.warnings.push_back(
        absl::StrCat("mpirun has bound ddprun, and with it all workers of this node, to ",
                     Counted(num_cpus, "CPU"), ": mpirun --bind-to none removes the limit"));
  }
  return found;
}

}  // namespace ddprun
