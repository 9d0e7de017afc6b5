package plan

// region lets a second region follow the first.
func (g *generator) region() {
	g.plan.Region = true
}
