package layout

import _ "embed" // the text

// After is the text of Lua functions for scripts that go through an index in order from a place on.
// It stands in front of such a script.
//
//go:embed after.lua
var After string
