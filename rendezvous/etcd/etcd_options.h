// How the register of a job on etcd is reached.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace ddprun {

// Contents of PEM files, not their names.
struct EtcdTls {
  std::string ca = {};           // certificates that sign those of the members; empty: those of the system
  std::string certificate = {};  // of this client; empty: none
  std::string key = {};          // of `certificate`
};

struct EtcdOptions {
  std::vector<std::string> endpoints = {};  // HOST:PORT, an IPv6 address in brackets; at least one
  std::string run_id = {};                  // of the job
  std::string prefix = "/ddprun";           // the keys are PREFIX/RUN_ID/lead and PREFIX/RUN_ID/charter
  std::string user = {};                    // of etcd's authentication; empty: none
  std::string password = {};
  std::optional<EtcdTls> tls = std::nullopt;  // none: without encryption
  // Keys of a job are removed when no process has written them for this time. It only removes garbage. At least 10 s; rounded to
  // seconds.
  Duration garbage_ttl = std::chrono::hours(24);
};

}  // namespace ddprun
