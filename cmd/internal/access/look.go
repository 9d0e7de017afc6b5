package access

import "context"

type lookKey struct{}

// Look marks a request that only looks at documents, such as one of the console: it renews no clock.
func Look(ctx context.Context) context.Context { return context.WithValue(ctx, lookKey{}, true) }

// OnlyLooks reports whether a request was marked by [Look].
func OnlyLooks(ctx context.Context) bool { return ctx.Value(lookKey{}) != nil }
