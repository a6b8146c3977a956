"""What models are asked, one file each: the words, their version, the form of the reply and what is wrong with one."""
