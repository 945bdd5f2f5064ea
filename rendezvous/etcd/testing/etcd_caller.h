// A register on etcd for tests whose calls return their results.
#pragma once

#include <memory>

#include "boost/asio/io_context.hpp"
#include "rendezvous/charter/testing/register_caller.h"
#include "rendezvous/etcd/etcd_options.h"
#include "rendezvous/etcd/etcd_register.h"

namespace ddprun {

class EtcdCaller final : public RegisterCaller {
 public:
  explicit EtcdCaller(const EtcdOptions& options)
      : RegisterCaller([&options](boost::asio::io_context& io) {
          return std::make_unique<EtcdRegister>(io, options);
        }) {}
};

}  // namespace ddprun
