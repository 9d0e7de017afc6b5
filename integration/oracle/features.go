package oracle

// Features returns what a stored document or its collection has now, beside a TTL by the default.
func (m *Model) Features() map[string]bool {
	has := map[string]bool{}
	note := func(feature string, holds bool) {
		if holds {
			has[feature] = true
		}
	}
	for name, d := range m.docs {
		c := m.collections[name.Collection]
		note("own TTL", d.TTL != 0)
		note("absolute deadline", d.End != nil)
		note("kept clock", d.Begin < d.Ts)
		note("not-after", d.Last != nil)
		note("limits", c.Min != 0 || c.Max != 0)
		note("maxLife", d.Limit != nil)
		note("sliding", c.Slides != 0)
		note("warnings", len(c.WarnBefore) > 0)
		note("target", d.Target != "")
		note("changes", c.Changes)
		note("no body", c.Bare)
		note("paused", c.Paused)
		note("indexes", len(c.Indexes) > 0)
	}
	note("paused", len(m.held) > 0)
	return has
}
