#include "rendezvous/http/http_readiness.h"

namespace muster::http {

std::optional<RouteError> objection_to_readiness(const AllFigures& figures) {
  if (!figures.runs.leads.value_or(true))
    return RouteError{503, "standing_by",
                      "this musterd stands by: it does not lead those that share its etcd"};
  if (figures.draining)
    return RouteError{503, "ending", "the job has ended, and no node is let in any more"};
  if (figures.runs.state_problem)
    return RouteError{503, "state_not_recorded",
                      "the state of the runs cannot be recorded, so no new run begins; the log of "
                      "musterd says why"};
  return std::nullopt;
}

}  // namespace muster::http
