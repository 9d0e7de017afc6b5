package observer

import (
	"strings"

	"github.com/seed18712806/lapse/integration/simulation/plan"
)

// Met counts that something happens to the documents that there are, by their features: see [plan.Cells].
func (h *Observer) Met(happening string) {
	if happening == "" {
		return
	}
	for feature := range h.model.Features() {
		h.faults[plan.Cell(feature, happening)]++
	}
}

// happening is what a step lets happen; "" if a plan has no cells for it.
func happening(s plan.Step) string {
	switch s.Verb {
	case "kill", "end":
		return "takeover"
	case "believe":
		if s.Args[1] == "no" {
			return "takeover"
		}
	case "redis-flush":
		return "wiped Redis"
	case "redis-full":
		return "full Redis"
	case "log-refuse", "events-refuse":
		return "full disk"
	case "log-truncate":
		return "log truncated"
	case "power-loss", "leader-change":
		return "ends lost"
	case "promote":
		return "promotion"
	case "drop":
		return "drop"
	case "config":
		if strings.Contains(s.Args[2], `"defaultTtl":`) {
			return "default changed"
		}
		return "off"
	}
	return ""
}
