// Package node builds a broker, a controller or both out of the packages that do the work, and knows the order in which
// they start, stop, and take in metadata. It decides nothing else.
//
// node.go is the life of a node: Start is one list, Stop the same list backwards. dirs.go opens the log directories.
// loader.go turns the metadata log into images, apply.go takes an image in, in one fixed order. broker.go and
// controller.go connect handlers and loops; settings.go makes plain options out of the configuration.
//
// Goroutines: the loader's applier and its writers of snapshots, a ticker for what is done now and then, and two that wait for
// the failure of the metadata log and of the registration. Everybody else's belong to the loops.
package node
