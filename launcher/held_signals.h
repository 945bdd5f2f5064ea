// The signals that end a launcher, kept from its first moment until it can act on them.
#pragma once

#include <vector>

#include "boost/asio/signal_set.hpp"

namespace ddprun {

// Holds what people, terminals and schedulers send to end a job, or to warn it (SIGTERM, SIGINT, SIGQUIT,
// SIGHUP, SIGUSR1, SIGUSR2), so that none is lost or taken for the default before it is known which of them
// count. To be called first of all.
void HoldSignals();

// Handles `which` through `signals` from here on, those that came since HoldSignals() too. Others do what
// they do by default: they end this process, and with it, through the warden, its workers. SIGHUP is left out
// if it is ignored: who started us with nohup wants us to survive the terminal.
void TakeSignals(boost::asio::signal_set& signals, const std::vector<int>& which);

}  // namespace ddprun
