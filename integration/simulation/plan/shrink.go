package plan

import (
	"slices"
	"strings"
)

// Shrink leaves out of a plan what it does not need to break the same rule. broken reports
// why a plan breaks one; nil if it does not.
func Shrink(plan *Plan, broken func(*Plan) error) *Plan {
	rule := ruleOf(broken(plan))
	for size := (len(plan.Steps) + 1) / 2; size > 0; size /= 2 {
		for from := 0; from < len(plan.Steps); {
			fewer := *plan
			fewer.Steps = slices.Delete(slices.Clone(plan.Steps), from, min(from+size, len(plan.Steps)))
			if ruleOf(broken(&fewer)) == rule {
				plan = &fewer
			} else {
				from += size
			}
		}
	}
	return plan
}

// ruleOf is the rule that an error names first.
func ruleOf(err error) string {
	if err == nil {
		return ""
	}
	rule, _, _ := strings.Cut(err.Error(), ":")
	return rule
}
