#include "launcher/report/local_host.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/match.h"

namespace ddprun {

std::string LocalHostName() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "localhost";
  if (absl::StrContains(name, '.')) return name;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_CANONNAME;
  addrinfo* found = nullptr;
  if (getaddrinfo(name, nullptr, &hints, &found) != 0) return name;
  std::string full = found->ai_canonname != nullptr ? found->ai_canonname : "";
  freeaddrinfo(found);
  // Some systems map their own name to localhost.localdomain, which means nothing to other machines.
  if (!absl::StrContains(full, '.') || absl::StartsWith(full, "localhost")) return name;
  return full;
}

}  // namespace ddprun
