// ddpctl slurm-script: a batch script for sbatch that starts ddprun on all nodes of a job. Pure.
#pragma once

#include <string>
#include <vector>

namespace ddprun {

// Returns the script, or the help text if --help is given.
//   args: the arguments that follow "slurm-script": its options, "--", and the arguments of ddprun. The latter
//         reach ddprun unchanged, whatever characters they contain. They follow the options of ddprun that the
//         script gives, so they can replace them.
//   Errors: throws boost::program_options::error for a usage error.
std::string SlurmScript(const std::vector<std::string>& args);

}  // namespace ddprun
