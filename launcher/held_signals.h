// The signals that end a launcher, kept from its first moment until it can act on them.
#pragma once

#include "boost/asio/signal_set.hpp"

namespace ddprun {

// Holds SIGTERM, SIGINT, SIGQUIT and SIGHUP, so that none is lost or taken for the default. To be called
// first of all.
void HoldSignals();

// Handles them through `signals` from here on, those that came since HoldSignals() too. SIGHUP is left out if
// it is ignored: who started us with nohup wants us to survive the terminal.
void TakeSignals(boost::asio::signal_set& signals);

}  // namespace ddprun
