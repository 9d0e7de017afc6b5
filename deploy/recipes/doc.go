// Package recipes has the files of the recipes that people copy into programs in Go: a store for scs, and a
// receiver of webhooks. Copy a file, and give it the name of your package. The pages beside them say what for.
package recipes
