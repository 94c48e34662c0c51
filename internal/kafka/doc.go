// Package kafka holds the words of the domain as types: ids, epochs, offsets and the names of internal topics.
// It imports nothing but the standard library and has no behaviour beyond parsing and printing, so every other
// package may use it. Epochs of different things are different types, so that one can never fence another by mistake.
package kafka
