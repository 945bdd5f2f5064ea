#include "launcher/ctl/ctl.h"

#include <cstdio>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/time.h"
#include "boost/asio/ip/tcp.hpp"
#include "boost/beast/core.hpp"
#include "boost/beast/http.hpp"
#include "boost/program_options.hpp"
#include "launcher/config/endpoint.h"
#include "launcher/ctl/status_table.h"

namespace ddprun {
namespace {

namespace po = boost::program_options;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr Duration kTimeout = seconds(10);
constexpr int kDefaultPort = 29400;

// The body of GET `path`.
absl::StatusOr<std::string> Get(const Endpoint& endpoint, const std::string& path) {
  boost::asio::io_context io(1);
  boost::asio::ip::tcp::resolver resolver(io);
  beast::tcp_stream stream(io);
  stream.expires_after(kTimeout);
  beast::error_code error;
  const auto addresses = resolver.resolve(endpoint.host, std::to_string(endpoint.port), error);
  if (error)
    return absl::UnavailableError(absl::StrCat(endpoint.host, " does not resolve: ", error.message()));

  http::request<http::empty_body> request{http::verb::get, path, 11};
  request.set(http::field::host, endpoint.host);
  http::response<http::string_body> response;
  beast::flat_buffer buffer;
  // Asynchronous, because only such operations keep the stream's deadline.
  stream.async_connect(addresses, [&](beast::error_code e, const auto&) {
    if ((error = e)) return;
    http::async_write(stream, request, [&](beast::error_code e, size_t) {
      if ((error = e)) return;
      http::async_read(stream, buffer, response, [&](beast::error_code e, size_t) { error = e; });
    });
  });
  io.run();
  if (error) {
    return absl::UnavailableError(absl::StrCat("no coordinator answers at ", ToString(endpoint), ": ",
                                               error.message(),
                                               "; --rdzv-endpoint is where the first node's ddprun listens"));
  }
  return response.body();
}

}  // namespace

int RunCtl(const std::vector<std::string>& args) {
  std::string endpoint_text;
  std::string command;
  po::options_description visible("Options");
  visible.add_options()("help,h", "print this text")("json", "print the coordinator's page as it is")(
      "rdzv-endpoint", po::value(&endpoint_text)->default_value("localhost:29400"),
      "HOST[:PORT] of the job's coordinator");
  po::options_description all;
  all.add(visible).add_options()("command", po::value(&command));
  po::positional_options_description positional;
  positional.add("command", 1);
  po::variables_map given;
  absl::StatusOr<Endpoint> endpoint;
  try {
    po::store(po::command_line_parser(args).options(all).positional(positional).run(), given);
    po::notify(given);
    if (given.contains("help")) {
      std::cout << "Usage: ddpctl status [options]\n\n  status   shows the jobs of a coordinator: nodes, "
                   "ranks, round, restarts\n\n"
                << visible;
      return 0;
    }
    if (command != "status")
      throw po::error(absl::StrCat("expected a command, status, not \"", command, "\""));
    endpoint = ParseEndpoint(endpoint_text, kDefaultPort);
    if (!endpoint.ok())
      throw po::error(absl::StrCat("--rdzv-endpoint: ", std::string(endpoint.status().message())));
  } catch (const po::error& e) {
    std::cerr << "ddpctl: error: " << e.what() << "\nddpctl: see ddpctl --help\n";
    return 2;
  }
  absl::StatusOr<std::string> page = Get(*endpoint, "/status");
  if (page.ok() && !given.contains("json")) page = StatusTable(*page);
  if (!page.ok()) {
    std::cerr << "ddpctl: error: " << page.status().message() << "\n";
    return 1;
  }
  std::cout << *page;
  return 0;
}

}  // namespace ddprun
